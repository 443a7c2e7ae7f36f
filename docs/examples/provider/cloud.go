package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A cloud stands in for your external system: a folder with a file for each
// database. It assigns the ids, and its answer to a create comes late.
type cloud struct {
	dir  string
	slow time.Duration
}

// A database is one in the cloud. The owner is a tag that the provider sets.
type database struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	Size  int64  `json:"size"`
}

func (c *cloud) create(ctx context.Context, d database) (string, error) {
	for n := 1; ; n++ {
		d.ID = fmt.Sprintf("db-%04d", n)
		f, err := os.OpenFile(c.path(d.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if err := errors.Join(json.NewEncoder(f).Encode(d), f.Close()); err != nil {
			return "", err
		}
		break
	}

	// The database exists, and its id is still on its way.
	select {
	case <-time.After(c.slow):
		return d.ID, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// list returns the databases of an owner.
func (c *cloud) list(ctx context.Context, owner string) ([]database, error) {
	paths, err := filepath.Glob(c.path("*"))
	if err != nil {
		return nil, err
	}
	var out []database

	for _, p := range paths {
		d, err := c.get(ctx, filepath.Base(p))
		if err != nil {
			return nil, err
		}
		if d != nil && d.Owner == owner {
			out = append(out, *d)
		}
	}
	return out, nil
}

// get returns a database, nil if there is none.
func (c *cloud) get(_ context.Context, id string) (*database, error) {
	b, err := os.ReadFile(c.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := &database{}
	return d, json.Unmarshal(b, d)
}

func (c *cloud) update(_ context.Context, d database) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(d.ID), b, 0o600)
}

func (c *cloud) delete(_ context.Context, id string) error {
	err := os.Remove(c.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (c *cloud) path(id string) string { return filepath.Join(c.dir, id) }
