package listen

import (
	"context"
	"net"
	"net/http"
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
