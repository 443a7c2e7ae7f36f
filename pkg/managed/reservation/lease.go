package reservation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Annotations of a Lease that reserves an external name.
const (
	// annotationKeyReserves has the reserved key. The Lease's name is a hash of the key.
	annotationKeyReserves = "graft.crossplane.io/reserves"

	// annotationKeyHolder has the kind and the name of the managed resource whose UID is the
	// identity of the holder.
	annotationKeyHolder = "graft.crossplane.io/holder"

	// annotationKeyEarlier has the name of the Lease of the holder's external name before this one.
	annotationKeyEarlier = "graft.crossplane.io/earlier-lease"
)

const (
	// leaseAttempts is the number of attempts in one reconcile to write a lease that other
	// holders write, too.
	leaseAttempts = 5

	maxReservesLength = 1024
)

// A holder is the managed resource that holds a lease.
type holder struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// describedTo describes a holder to users of another managed resource. It does not name a
// holder in another namespace, because these users may not be allowed to read it.
func (h holder) describedTo(other holder) string {
	if h.Namespace != other.Namespace {
		return "a managed resource in another namespace"
	}
	return fmt.Sprintf("%s %s (uid %s)", h.Kind, strings.TrimPrefix(h.Namespace+"/"+h.Name, "/"), h.UID)
}

// A heldError says that another managed resource holds a lease.
type heldError struct {
	by    string
	lease string
}

func (e *heldError) Error() string {
	return fmt.Sprintf("it is reserved by %s, which manages that external resource until it is removed", e.by)
}

// leases holds and releases leases in one namespace. A lease does not expire: its
// holder has it until the holder releases it or no longer exists. Leases are read from the
// API server, not from the cache, and written with the resource version that was read.
//
// Leases are unstructured, so the manager's scheme does not need them.
type leases struct {
	client    client.Client
	live      client.Reader
	namespace string
}

// leaseName returns the name of the lease of a key.
func leaseName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "graft-" + hex.EncodeToString(sum[:20])
}

// A claim says how to hold a lease.
type claim struct {
	// take reports whether to take a lease that is free.
	take bool

	// earlier is the name of the lease that the holder has taken before, or empty.
	earlier string
	now     time.Time
}

// hold reports whether h holds the lease of a key, and takes the lease if c says so. It returns a heldError if an
// existing managed resource holds it. After any other error, the holder is unknown.
func (l *leases) hold(ctx context.Context, key string, h holder, c claim) (bool, error) {
	name := leaseName(key)

	for range leaseAttempts {
		u, err := l.get(ctx, name)
		if err != nil {
			return false, err
		}
		if u != nil {
			if mine, err := l.free(ctx, u, h); err != nil || mine {
				return mine, err
			}
		}

		switch {
		case !c.take:
			return false, nil
		case u == nil:
			u = emptyLease(l.namespace, name)
			fill(u, key, h, c)
			err = l.client.Create(ctx, u)
		default:
			fill(u, key, h, c)
			err = l.client.Update(ctx, u)
		}

		switch {
		case err == nil:
			return true, nil
		case !kerrors.IsAlreadyExists(err) && !kerrors.IsConflict(err) && !kerrors.IsNotFound(err):
			return false, errors.Wrapf(err, "cannot write lease %s/%s", l.namespace, name)
		case kerrors.IsNotFound(err) && u.GetResourceVersion() == "":
			return false, errors.Wrapf(err, "cannot create lease %s/%s: does the namespace exist?", l.namespace, name)
		}
	}
	return false, errors.Errorf(
		"cannot write lease %s/%s: too many conflicting writes (%d attempts)", l.namespace, name, leaseAttempts,
	)
}

// free reports whether h holds the lease. It returns an error if another holder has it, unless
// that holder no longer exists.
func (l *leases) free(ctx context.Context, u *unstructured.Unstructured, h holder) (mine bool, err error) {
	identity := holderOf(u)

	switch identity {
	case string(h.UID):
		return true, nil
	case "":
		return false, nil
	}

	by := holder{}
	if err := json.Unmarshal([]byte(u.GetAnnotations()[annotationKeyHolder]), &by); err != nil ||
		string(by.UID) != identity {
		return false, errors.Errorf(
			"lease %s/%s does not name the managed resource that holds it: delete the lease if no managed resource needs it",
			u.GetNamespace(), u.GetName(),
		)
	}
	gone, err := l.gone(ctx, by, h)

	switch {
	case err != nil:
		return false, errors.Wrapf(
			hidden(err, by, h),
			"cannot check whether %s still exists, which holds lease %s/%s; if it doesn't, delete the lease",
			by.describedTo(h), u.GetNamespace(), u.GetName(),
		)
	case !gone:
		return false, &heldError{by: by.describedTo(h), lease: u.GetName()}
	}
	return false, nil
}

// hidden returns an error of reading a holder for users of another managed resource. The API
// server's own error names the holder.
func hidden(err error, by, other holder) error {
	if by.Namespace == other.Namespace {
		return err
	}
	return errors.Errorf("cannot read it: %s", kerrors.ReasonForError(err))
}

// gone reports whether h no longer exists. If another holder is of the same kind, its version
// is used for the read, because the version that h has recorded may no longer be served.
func (l *leases) gone(ctx context.Context, h, other holder) (bool, error) {
	o, of := &metav1.PartialObjectMetadata{}, schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if is := schema.FromAPIVersionAndKind(other.APIVersion, other.Kind); is.GroupKind() == of.GroupKind() {
		of = is
	}
	o.SetGroupVersionKind(of)
	err := l.live.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: h.Name}, o)

	switch {
	case err == nil:
		return o.GetUID() != h.UID, nil
	case isObjectNotFound(err, h.Name):
		return true, nil
	default:
		return false, err
	}
}

// isObjectNotFound reports whether err is a "not found" for an object of that name.
func isObjectNotFound(err error, name string) bool {
	var s kerrors.APIStatus
	return seam.IsGone(err) && errors.As(err, &s) && s.Status().Details != nil && s.Status().Details.Name == name
}

// release the lease of that name if h holds it, and the leases that h has taken before it.
func (l *leases) release(ctx context.Context, name string, h holder) error {
	for attempts := 0; name != "" && attempts < leaseAttempts; attempts++ {
		u, err := l.get(ctx, name)
		if err != nil {
			return err
		}
		if u == nil || holderOf(u) != string(h.UID) {
			return nil
		}
		uid, version := u.GetUID(), u.GetResourceVersion()
		err = l.client.Delete(ctx, u, client.Preconditions{UID: &uid, ResourceVersion: &version})

		switch {
		case client.IgnoreNotFound(err) == nil:
			name, attempts = u.GetAnnotations()[annotationKeyEarlier], -1
		case !kerrors.IsConflict(err):
			return errors.Wrapf(err, "cannot delete lease %s/%s", l.namespace, name)
		}
	}
	if name == "" {
		return nil
	}
	return errors.Errorf(
		"cannot delete lease %s/%s: too many conflicting writes (%d attempts)", l.namespace, name, leaseAttempts,
	)
}

// get returns a lease from the API server, or nil if it does not exist.
func (l *leases) get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	u := emptyLease(l.namespace, name)
	err := l.live.Get(ctx, client.ObjectKeyFromObject(u), u)

	switch {
	case err == nil:
		return u, nil
	case isObjectNotFound(err, name):
		return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
	default:
		return nil, errors.Wrapf(err, "cannot read lease %s/%s", l.namespace, name)
	}
}

// holderOf returns the UID of the managed resource that holds a lease, or an empty string.
func holderOf(u *unstructured.Unstructured) string {
	identity, _, _ := unstructured.NestedString(u.Object, "spec", "holderIdentity")
	return identity
}

// fill sets h as the holder of u. The holder does not own it: in a foreground deletion the garbage
// collector would delete the lease before its holder, and another managed resource could take it.
func fill(u *unstructured.Unstructured, key string, h holder, c claim) {
	by, _ := json.Marshal(h) //nolint:errchkjson // Strings alone.
	reserves := strings.ToValidUTF8(key, "?")
	if len(reserves) > maxReservesLength {
		reserves = strings.ToValidUTF8(reserves[:maxReservesLength], "")
	}
	meta.AddAnnotations(u, map[string]string{annotationKeyReserves: reserves, annotationKeyHolder: string(by)})
	meta.RemoveAnnotations(u, annotationKeyEarlier)
	if c.earlier != "" && c.earlier != u.GetName() {
		meta.AddAnnotations(u, map[string]string{annotationKeyEarlier: c.earlier})
	}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["holderIdentity"] = string(h.UID)
	spec["acquireTime"] = c.now.UTC().Format(metav1.RFC3339Micro)
	u.Object["spec"] = spec
}

func emptyLease(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("coordination.k8s.io/v1")
	u.SetKind("Lease")
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
