package managed

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
	// annotationKeyReserves says what is reserved, since the Lease's name is a
	// hash of it.
	annotationKeyReserves = "graft.crossplane.io/reserves"

	// annotationKeyHolder says which managed resource it is whose UID is the
	// holder's identity.
	annotationKeyHolder = "graft.crossplane.io/holder"
)

const (
	// leaseAttempts is how often taking a lease is tried in one reconcile while
	// other holders write it.
	leaseAttempts = 5

	maxReservesLength = 1024
)

// A holder is the managed resource that has a lease.
type holder struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`

	// foreground says that the garbage collector deletes what it owns before it goes.
	foreground bool
}

// describedTo names a holder to a user of another managed resource. One in another
// namespace is not named: that user may not be allowed to know that it exists.
func (h holder) describedTo(other holder) string {
	if h.Namespace != other.Namespace {
		return "a managed resource in another namespace"
	}
	return fmt.Sprintf("%s %s (uid %s)", h.Kind, strings.TrimPrefix(h.Namespace+"/"+h.Name, "/"), h.UID)
}

// A lease is what has to be known to give one back.
type lease struct {
	name    string
	uid     types.UID
	version string

	// written says that this process wrote it last.
	written bool
}

// A heldError says that another managed resource holds a lease.
type heldError struct {
	by    string
	lease string
}

func (e *heldError) Error() string {
	return fmt.Sprintf("it is reserved by %s, which manages that external resource until it is removed", e.by)
}

// leases are kept in one namespace. They don't expire: a holder has one until it
// releases it, or no longer exists. They are read from the API server itself, and
// written under what was read.
//
// Leases are unstructured, so that the manager's scheme need not know them.
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

// check finds out whether h may have the lease of a key, and whether it has it. It
// returns a heldError if another holder has it that exists. With any other error it is
// unknown which holder has it.
func (l *leases) check(ctx context.Context, key string, h holder) (lease, bool, error) {
	name := leaseName(key)
	u, err := l.get(ctx, name)
	if err != nil {
		return lease{}, false, errors.Wrapf(err, "cannot read lease %s/%s", l.namespace, name)
	}
	if u == nil {
		return lease{}, false, nil
	}
	mine, err := l.free(ctx, u, h)
	return leaseOf(u), mine, err
}

// hold takes the lease of a key for h, or finds that h has it. It returns the errors
// of check. If renews is true it writes one, too, that this process did not write last:
// another process of ours, which is about to release it, must meet a conflict.
func (l *leases) hold(ctx context.Context, key string, h holder, had lease, renews bool, now time.Time) (lease, error) {
	name := leaseName(key)

	for range leaseAttempts {
		u, err := l.get(ctx, name)
		if err != nil {
			return lease{}, errors.Wrapf(err, "cannot read lease %s/%s", l.namespace, name)
		}
		if u == nil {
			u = emptyLease(l.namespace, name)
			l.fill(u, key, h, now)
			err = l.client.Create(ctx, u)
		} else {
			var mine bool
			mine, err = l.free(ctx, u, h)
			if err != nil {
				return lease{}, err
			}
			is := leaseOf(u)
			is.written = had.written && had.uid == is.uid && had.version == is.version
			if mine && (is.written || !renews) && (!h.foreground || len(u.GetOwnerReferences()) == 0) {
				return is, nil
			}
			l.fill(u, key, h, now)
			err = l.client.Update(ctx, u)
		}

		switch {
		case err == nil:
			is := leaseOf(u)
			is.written = true
			return is, nil
		case !kerrors.IsAlreadyExists(err) && !kerrors.IsConflict(err) && !kerrors.IsNotFound(err):
			return lease{}, errors.Wrapf(err, "cannot write lease %s/%s", l.namespace, name)
		case kerrors.IsNotFound(err) && u.GetResourceVersion() == "":
			return lease{}, errors.Wrapf(err, "cannot create lease %s/%s: does the namespace exist?", l.namespace, name)
		}
	}
	return lease{}, errors.Errorf("cannot write lease %s/%s: too many conflicting writes (%d attempts)", l.namespace, name, leaseAttempts)
}

// free reports whether the lease is h's already. It returns an error unless it is,
// or its holder is known to no longer exist.
func (l *leases) free(ctx context.Context, u *unstructured.Unstructured, h holder) (mine bool, err error) {
	identity, _, _ := unstructured.NestedString(u.Object, "spec", "holderIdentity")

	switch identity {
	case string(h.UID):
		return true, nil
	case "":
		return false, nil
	}

	by := holder{}
	if err := json.Unmarshal([]byte(u.GetAnnotations()[annotationKeyHolder]), &by); err != nil || string(by.UID) != identity {
		return false, errors.Errorf("lease %s/%s does not say which managed resource holds it: if none needs it, delete it", u.GetNamespace(), u.GetName())
	}
	gone, err := l.gone(ctx, by, h)

	switch {
	case err != nil:
		return false, errors.Wrapf(hidden(err, by, h), "cannot find out whether %s still exists, which holds lease %s/%s; if it doesn't, delete the lease", by.describedTo(h), u.GetNamespace(), u.GetName())
	case !gone:
		return false, &heldError{by: by.describedTo(h), lease: u.GetName()}
	}
	return false, nil
}

// hidden returns an error about by as a user of another managed resource may read it:
// that of the API server names what was asked for.
func hidden(err error, by, other holder) error {
	if by.Namespace == other.Namespace {
		return err
	}
	return errors.Errorf("cannot read it: %s", kerrors.ReasonForError(err))
}

// gone reports whether h is known to no longer exist. If it is of the same kind as
// another holder it is read in the version of that: its own may not be served any more.
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

// isObjectNotFound reports whether err says that an object of that name does not
// exist.
func isObjectNotFound(err error, name string) bool {
	var s kerrors.APIStatus
	return seam.IsGone(err) && errors.As(err, &s) && s.Status().Details != nil && s.Status().Details.Name == name
}

// release what h may have, as long as it is not needed. What is known of the lease saves
// a read. It reports whether h has it no more.
func (l *leases) release(ctx context.Context, known lease, h holder, needed func(context.Context) bool) (bool, error) {
	for range leaseAttempts {
		if known.version == "" {
			u, err := l.get(ctx, known.name)
			if err != nil {
				return false, errors.Wrapf(err, "cannot read lease %s/%s", l.namespace, known.name)
			}
			if u == nil {
				return true, nil
			}
			if identity, _, _ := unstructured.NestedString(u.Object, "spec", "holderIdentity"); identity != string(h.UID) {
				return true, nil
			}
			known = leaseOf(u)
		}

		// At this version, so that it is needed by no process that has taken over since.
		if needed(ctx) {
			return false, nil
		}
		err := l.client.Delete(ctx, emptyLease(l.namespace, known.name), client.Preconditions{UID: &known.uid, ResourceVersion: &known.version})

		switch {
		case client.IgnoreNotFound(err) == nil:
			return true, nil
		case !kerrors.IsConflict(err):
			return false, errors.Wrapf(err, "cannot delete lease %s/%s", l.namespace, known.name)
		}

		known.version = ""
	}
	return false, errors.Errorf("cannot delete lease %s/%s: too many conflicting writes (%d attempts)", l.namespace, known.name, leaseAttempts)
}

// get returns a lease as the API server has it, or nil.
func (l *leases) get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	u := emptyLease(l.namespace, name)
	err := l.live.Get(ctx, client.ObjectKeyFromObject(u), u)

	switch {
	case err == nil:
		return u, nil
	case isObjectNotFound(err, name):
		return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
	default:
		return nil, err
	}
}

// fill makes u a lease of h's.
func (l *leases) fill(u *unstructured.Unstructured, key string, h holder, now time.Time) {
	by, _ := json.Marshal(h) //nolint:errchkjson // Strings alone.
	reserves := strings.ToValidUTF8(key, "?")
	if len(reserves) > maxReservesLength {
		reserves = strings.ToValidUTF8(reserves[:maxReservesLength], "")
	}
	meta.AddAnnotations(u, map[string]string{annotationKeyReserves: reserves, annotationKeyHolder: string(by)})

	// An owner in another namespace counts as one that is gone, and the lease
	// would go with it. In a foreground deletion it would go before its owner.
	u.SetOwnerReferences(nil)
	if !h.foreground && (h.Namespace == "" || h.Namespace == l.namespace) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: h.APIVersion, Kind: h.Kind, Name: h.Name, UID: h.UID}})
	}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["holderIdentity"] = string(h.UID)
	spec["acquireTime"] = now.UTC().Format(metav1.RFC3339Micro)
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

func leaseOf(u *unstructured.Unstructured) lease {
	return lease{name: u.GetName(), uid: u.GetUID(), version: u.GetResourceVersion()}
}
