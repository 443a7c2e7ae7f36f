package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What a state store has instead of watches. Match with errors.Is.
var (
	// ErrNoState means that nothing was saved.
	ErrNoState = errors.New("no watches were saved")

	// ErrUnreadableState means that what was saved can't be understood by
	// anybody. It is replaced.
	ErrUnreadableState = errors.New("saved watches can't be read")

	// ErrNewerState means that a newer version of Graft saved the watches. They
	// are left as they are.
	ErrNewerState = errors.New("a newer version saved the watches")
)

// A StateStore keeps which watches there were, from one process to the next. The
// engine calls one method at a time.
type StateStore interface {
	// Load what was saved last. If there is nothing that can be used, the error
	// matches ErrNoState, ErrUnreadableState or ErrNewerState. Any other error
	// means that the store can't be asked now: the engine tries again, and
	// doesn't save before it knows what is there.
	Load(ctx context.Context) (SavedWatches, error)

	// Save replaces what was saved before, but not what a newer version saved: the
	// error matches ErrNewerState then. The engine doesn't call it after such an
	// error, from here or from Load, until Load returns another.
	Save(ctx context.Context, s SavedWatches) error
}

// SavedWatches are the watches of controllers, by the controllers' names.
type SavedWatches map[string][]WatchID

// What a ConfigMap holds.
const (
	// savedVersion is raised when an older Graft couldn't understand what we
	// save.
	savedVersion = 1

	savedKey = "watches.json"

	// maxSavedBytes leaves room below the limit of 1 MiB that a ConfigMap has.
	maxSavedBytes = 1000 * 1024
)

type savedDocument struct {
	Version     int                         `json:"version"`
	Controllers map[string][]savedWatchType `json:"controllers"`
}

// savedWatchType is a watch, in few bytes.
type savedWatchType struct {
	Type    string `json:"type"`
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// A ConfigMapStore keeps watches in a ConfigMap, which it makes if need be.
type ConfigMapStore struct {
	client client.Client
	key    types.NamespacedName
}

// NewConfigMapStore returns a store. The client must not read from a cache. It
// needs to get, create and update the ConfigMap.
func NewConfigMapStore(c client.Client, key types.NamespacedName) *ConfigMapStore {
	return &ConfigMapStore{client: c, key: key}
}

// Load what was saved.
func (s *ConfigMapStore) Load(ctx context.Context) (SavedWatches, error) {
	cm := &corev1.ConfigMap{}
	if err := s.client.Get(ctx, s.key, cm); err != nil {
		if kerrors.IsNotFound(err) {
			return nil, errors.Wrapf(ErrNoState, "there is no ConfigMap %q", s.key)
		}
		return nil, errors.Wrapf(err, "cannot get ConfigMap %q", s.key)
	}
	text, ok := cm.Data[savedKey]
	if !ok {
		return nil, errors.Wrapf(ErrNoState, "ConfigMap %q has no %q", s.key, savedKey)
	}
	ws, err := decodeWatches(text)
	return ws, errors.Wrapf(err, "cannot read ConfigMap %q", s.key)
}

// Save replaces what was saved, unless a newer version did. What somebody else
// keeps in the ConfigMap stays.
func (s *ConfigMapStore) Save(ctx context.Context, ws SavedWatches) error {
	text, err := encodeWatches(ws)
	if err != nil {
		return err
	}

	cm := &corev1.ConfigMap{}
	err = s.client.Get(ctx, s.key, cm)
	if kerrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name},
			Data:       map[string]string{savedKey: text},
		}
		return errors.Wrapf(s.client.Create(ctx, cm), "cannot create ConfigMap %q", s.key)
	}
	if err != nil {
		return errors.Wrapf(err, "cannot get ConfigMap %q", s.key)
	}
	old, ok := cm.Data[savedKey]
	if old == text {
		return nil
	}
	if _, err := decodeWatches(old); ok && errors.Is(err, ErrNewerState) {
		return errors.Wrapf(err, "cannot replace what is in ConfigMap %q", s.key)
	}
	if cm.Data == nil {
		cm.Data = make(map[string]string)
	}
	cm.Data[savedKey] = text
	return errors.Wrapf(s.client.Update(ctx, cm), "cannot update ConfigMap %q", s.key)
}

// decodeWatches reads what encodeWatches wrote. What a newer version wrote may have
// anything beside its version, so that is looked at first.
func decodeWatches(text string) (SavedWatches, error) {
	v := struct {
		Version json.RawMessage `json:"version"`
	}{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadableState, err)
	}
	if len(v.Version) == 0 || string(v.Version) == "null" {
		return nil, errors.Wrap(ErrUnreadableState, "it doesn't say which version it is")
	}
	// Versions that aren't numbers may come.
	n, err := strconv.Atoi(string(v.Version))
	if err != nil || n > savedVersion {
		return nil, errors.Wrapf(ErrNewerState, "it has version %s, and we know version %d", v.Version, savedVersion)
	}
	if n < savedVersion {
		return nil, errors.Wrapf(ErrUnreadableState, "it has version %d, which never was", n)
	}

	d := &savedDocument{}
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadableState, err)
	}
	out := make(SavedWatches, len(d.Controllers))
	for name, ws := range d.Controllers {
		for _, w := range ws {
			id := WatchID{Type: WatchType(w.Type)}
			id.GVK.Group, id.GVK.Version, id.GVK.Kind = w.Group, w.Version, w.Kind
			out[name] = append(out[name], id)
		}
	}
	return out, nil
}

// encodeWatches writes the same text for the same watches.
func encodeWatches(ws SavedWatches) (string, error) {
	d := savedDocument{Version: savedVersion, Controllers: make(map[string][]savedWatchType, len(ws))}
	for name, ids := range ws {
		ids = slices.Clone(ids)
		slices.SortFunc(ids, func(a, b WatchID) int {
			return cmp.Or(compareGVK(a.GVK, b.GVK), strings.Compare(string(a.Type), string(b.Type)))
		})
		for _, id := range ids {
			d.Controllers[name] = append(d.Controllers[name], savedWatchType{
				Type: string(id.Type), Group: id.GVK.Group, Version: id.GVK.Version, Kind: id.GVK.Kind,
			})
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return "", errors.Wrap(err, "cannot encode watches")
	}
	if len(text) > maxSavedBytes {
		return "", fmt.Errorf("%d bytes of watches don't fit into a ConfigMap", len(text))
	}
	return string(text), nil
}
