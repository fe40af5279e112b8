package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/gresize/gresize/daemon/listen"
)

// maxConnections are kept at once: on loopback every user of the machine may open some, and each is a descriptor of the daemon's.
const maxConnections = 64

// Serve answers on a listener until the context ends.
func (m *Metrics) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: m.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		DisableGeneralOptionsHandler: true}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listen.Guarded(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
