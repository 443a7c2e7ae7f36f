package main

// A failure ends a story.
type failure struct{ error }

// check ends the story if there is an error. So a story is a list of events, without an error after each.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// try returns the error that ends fn early.
func try(fn func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	fn()
	return nil
}
