package is

import "github.com/pkg/errors"

// NilOption returns an error if one of the options is nil. first is the position of the first
// option among the arguments of the function with this name.
func NilOption[T any](options []T, name string, first int) error {
	for i, o := range options {
		if Nil(o) {
			return errors.Errorf("%s was given nil (argument %d): leave it out", name, first+i)
		}
	}
	return nil
}

// MustNotBeNil panics if v is nil. name is the option that was given v.
func MustNotBeNil(v any, name string) {
	if Nil(v) {
		panic(errors.Errorf("%s was given nil: leave the option out to get the default", name))
	}
}

// MustHaveNoNil panics if one of the options is nil. first is the position of the first
// option among the arguments of the function with this name.
func MustHaveNoNil[T any](options []T, name string, first int) {
	if err := NilOption(options, name, first); err != nil {
		panic(err)
	}
}
