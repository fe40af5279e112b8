package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
)

type connectionKey struct{}

// WithConnection is an http.Server's ConnContext: it remembers the connection of a request, for Trust.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// Trust keeps the connection of a request from being closed for another, until it is told that this is over. A connection of another kind of listener never is.
func Trust(r *http.Request) (over func()) {
	if guest, ok := r.Context().Value(connectionKey{}).(*Guest); ok {
		return guest.Trust()
	}
	return func() {}
}

// Body reads the body of a request whole, of so many bytes at most, or answers why it could not: too large (413), too slow (408), broken off (400).
func Body(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	// Room for what was announced: a buffer that grows holds it twice. What was announced and does not come takes no memory.
	var read bytes.Buffer
	if announced := r.ContentLength; announced > 0 && announced <= most {
		read.Grow(int(announced) + bytes.MinRead)
	}
	_, err := read.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	body := read.Bytes()
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return body, true
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the body is larger than %d bytes", most), http.StatusRequestEntityTooLarge)
	case errors.Is(err, os.ErrDeadlineExceeded):
		http.Error(w, "the body came too slowly", http.StatusRequestTimeout)
	default:
		http.Error(w, "the body broke off", http.StatusBadRequest)
	}
	return nil, false
}
