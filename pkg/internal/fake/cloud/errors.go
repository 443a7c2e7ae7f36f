package cloud

import "errors"

// Errors that callers tell apart with errors.Is. What a call returns names the
// operation and the resource around them.
var (
	// ErrNotFound says that there is no such resource, or none visible yet.
	ErrNotFound = errors.New("resource not found")

	// ErrAlreadyExists says that the name is taken, be it by a resource that is
	// still being deleted.
	ErrAlreadyExists = errors.New("resource already exists")

	// ErrDeleting says that the resource is being deleted and can't be changed.
	ErrDeleting = errors.New("resource is being deleted")

	// ErrTokenReused says that an idempotency token came back with another
	// request than its first one.
	ErrTokenReused = errors.New("idempotency token was used for another request")

	// ErrInvalid says that the request makes no sense.
	ErrInvalid = errors.New("invalid request")

	// ErrUnauthenticated says that the session's token isn't, or no longer, valid.
	ErrUnauthenticated = errors.New("invalid credentials")
)
