package probeapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/listen"
)

// The places of this side. A request has one only when its key was right, and no owner's requests and no probe's take those of others.
const (
	// maxConnections are open at once, strangers' included: the oldest of them go for new ones.
	maxConnections = 1024
	maxAtOnce      = 64
	ofOwner        = 16
	ofProbe        = 4
	// maxUploads are in memory at once.
	maxUploads = 4
	// uploadsOfOwner leaves half of them to others.
	uploadsOfOwner = 2
	// leastBytesPerSecond is what a bundle has to arrive at.
	leastBytesPerSecond = 256 << 10
)

type places struct {
	uploads chan struct{}

	mu     sync.Mutex
	all    int
	owners map[uint32]*ownersPlaces
	probes map[string]int
}

type ownersPlaces struct {
	requests int
	uploads  chan struct{}
}

func newPlaces() *places {
	return &places{uploads: make(chan struct{}, maxUploads), owners: map[uint32]*ownersPlaces{}, probes: map[string]int{}}
}

// take gives a place to a request of a known probe, or none.
func (p *places) take(uid uint32, probe string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.owners[uid]
	if p.all >= maxAtOnce || p.probes[probe] >= ofProbe || o != nil && o.requests >= ofOwner {
		return false
	}
	if o == nil {
		o = &ownersPlaces{uploads: make(chan struct{}, uploadsOfOwner)}
		p.owners[uid] = o
	}
	p.all++
	p.probes[probe]++
	o.requests++
	return true
}

func (p *places) give(uid uint32, probe string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.probes[probe]--; p.probes[probe] == 0 {
		delete(p.probes, probe)
	}
	if p.owners[uid].requests--; p.owners[uid].requests == 0 {
		delete(p.owners, uid)
	}
}

// upload waits for the turn of an owner who has a place, first among that owner's own.
func (p *places) upload(ctx context.Context, uid uint32) (done func(), ok bool) {
	p.mu.Lock()
	own := p.owners[uid].uploads
	p.mu.Unlock()
	for i, turns := range []chan struct{}{own, p.uploads} {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-own
			}
			return nil, false
		}
	}
	return func() { <-p.uploads; <-own }, true
}

type ownerKey struct{}

// ownerOf is the owner of the probe whose key a request has.
func ownerOf(r *http.Request) uint32 {
	uid, _ := r.Context().Value(ownerKey{}).(uint32)
	return uid
}

// known lets a request through whose key is right, with a place; before that nothing of its body is read.
func (s *Server) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		uid, err := s.source.ProbeOwner(name, key(r))
		if err != nil {
			// What is left of the body is not waited for.
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
			s.refuse(w, r, err)
			return
		}
		if !s.places.take(uid, name) {
			http.Error(w, "busy, try again", http.StatusServiceUnavailable)
			return
		}
		defer s.places.give(uid, name)
		defer listen.Trust(r)()
		defer s.Heartbeat.Begin("a page of a probe", longestUpload+writeTimeout).End()
		next(w, r.WithContext(context.WithValue(r.Context(), ownerKey{}, uid)))
	}
}

// patience gives a large body the time that its size needs.
func patience(w http.ResponseWriter, r *http.Request) {
	limit := longestUpload
	if r.ContentLength >= 0 {
		limit = min(limit, readTimeout+time.Duration(r.ContentLength)*time.Second/leastBytesPerSecond)
	}
	now := time.Now()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(now.Add(limit)) // a recorder of a test has none
	_ = control.SetWriteDeadline(now.Add(limit + writeTimeout))
}
