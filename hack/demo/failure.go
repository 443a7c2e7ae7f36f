package main

// A failure ends a story.
type failure struct{ error }

// check ends the story if there is an error. So a story is a list of events, without an error after each.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns a value, or ends the story if there is an error.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// try returns what fn returns, or the error that ends fn early.
func try[T any](fn func() T) (out T, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	return fn(), nil
}
