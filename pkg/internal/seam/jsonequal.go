package seam

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
)

// storedEqual reports whether a and b are equal as stored. Go values may differ that the API
// server stores alike: it drops fractions of a second, and the white space and order of keys
// in raw JSON.
func storedEqual(a, b any) bool {
	as, err := json.Marshal(a)
	if err != nil {
		return false
	}
	bs, err := json.Marshal(b)
	if err != nil {
		return false
	}
	if bytes.Equal(as, bs) {
		return true
	}
	av, aok := decoded(as)
	bv, bok := decoded(bs)
	return aok && bok && reflect.DeepEqual(av, bv)
}

// decoded returns JSON as the API server decodes it.
func decoded(data []byte) (any, bool) {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, false
	}
	return canonical(v), true
}

// canonical returns v with numbers that are equal written in the same way.
func canonical(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = canonical(v[k])
		}
	case []any:
		for i := range v {
			v[i] = canonical(v[i])
		}
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			return v
		}

		// Up to here floats count whole numbers exactly.
		const exact = 1 << 53
		if i := int64(f); float64(i) == f && i > -exact && i < exact {
			return i
		}
		return f
	}
	return v
}
