package heartbeat

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLateLoopsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		check := func(what, want string) {
			t.Helper()
			got := ""
			if err := m.Check(); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		b := m.Begin("the loop", 5*time.Second)
		ctx := With(t.Context(), b)
		check("begun", "")
		time.Sleep(5 * time.Second)
		check("at its limit", "")
		time.Sleep(2 * time.Second)
		check("over its limit", "stuck: the loop is 2s late")
		b.Turn()
		check("gone on", "")

		done := Call(ctx, 30*time.Second)
		time.Sleep(34 * time.Second)
		check("in a call that may take that long", "")
		time.Sleep(2 * time.Second)
		check("in a call that keeps no limit", "stuck: the loop is 1s late")
		done()
		time.Sleep(4 * time.Second)
		check("after the call", "")
		time.Sleep(2 * time.Second)
		check("stuck after the call", "stuck: the loop is 1s late")

		b.Idle()
		time.Sleep(24 * time.Hour)
		check("without work", "")
		b.Turn()
		other := m.Begin("another", time.Second)
		time.Sleep(6 * time.Second)
		check("two", "stuck: another is 5s late, the loop is 1s late")
		b.End()
		other.End()
		check("ended", "")
	})
}

// TestNothingToWatch: whoever has no monitor need not ask.
func TestNothingToWatch(t *testing.T) {
	var m *Monitor
	b := m.Begin("nobody", time.Nanosecond)
	b.Turn()
	b.Wait(time.Second)
	b.Idle()
	Call(With(context.Background(), b), time.Second)()
	Call(context.Background(), time.Second)()
	b.End()
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if err := New().Check(); err != nil {
		t.Error(err)
	}
}
