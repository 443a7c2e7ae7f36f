package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A StateStore keeps which watches there were, from one process to the next. The
// engine calls one method at a time.
type StateStore interface {
	// Load what was saved last: nothing, without an error, if nothing was.
	Load(ctx context.Context) (SavedWatches, error)

	// Save replaces what was saved before.
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

// Load what was saved. It is an error if a newer version than we know did.
func (s *ConfigMapStore) Load(ctx context.Context) (SavedWatches, error) {
	cm := &corev1.ConfigMap{}
	if err := s.client.Get(ctx, s.key, cm); err != nil {
		if kerrors.IsNotFound(err) {
			return SavedWatches{}, nil
		}
		return nil, errors.Wrapf(err, "cannot get ConfigMap %q", s.key)
	}
	text, ok := cm.Data[savedKey]
	if !ok {
		return SavedWatches{}, nil
	}
	d := &savedDocument{}
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, errors.Wrapf(err, "cannot read ConfigMap %q", s.key)
	}
	if d.Version != savedVersion {
		return nil, errors.Errorf("ConfigMap %q has version %d, and we know version %d", s.key, d.Version, savedVersion)
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

// Save replaces what was saved. What somebody else keeps in the ConfigMap stays.
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
	if cm.Data[savedKey] == text {
		return nil
	}
	if cm.Data == nil {
		cm.Data = make(map[string]string)
	}
	cm.Data[savedKey] = text
	return errors.Wrapf(s.client.Update(ctx, cm), "cannot update ConfigMap %q", s.key)
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
