package jobs

import (
	"runtime"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/wire"
)

// TestOneOwnerCannotFillTheLog: of submissions that pass, one owner's get 2,000 rows at once and one a second after that; another's get theirs.
func TestOneOwnerCannotFillTheLog(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	at := time.Now()
	rows := func(uid uint32, n int, at time.Time) (may int) {
		for range n {
			if b.manager.mayAddRow(uid, at) {
				may++
			}
		}
		return may
	}
	if got := rows(1, 5000, at); got != rowsAtOnce {
		t.Errorf("%d rows at once", got)
	}
	if got := rows(1, 100, at.Add(10*time.Second)); got != 10 {
		t.Errorf("%d rows after ten seconds", got)
	}
	if got := rows(2, 10, at); got != 10 {
		t.Errorf("another has %d of 10", got)
	}
	for uid := range uint32(2 * maxRowOwners) {
		b.manager.mayAddRow(uid, at)
	}
	if n := len(b.manager.rows); n > maxRowOwners {
		t.Errorf("%d owners are counted", n)
	}
}

// TestTenThousandSubmissionsStaySmall: 10,000 submissions of ten users in a row, with scripts of 4 KiB, take no more memory than the bounds say.
func TestTenThousandSubmissionsStaySmall(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most := held(), int64(0)
	begun, verdicts := time.Now(), map[wire.Verdict]int{}
	for i := range 10_000 {
		r := sample()
		r.UserID = 2000 + uint32(i%10)
		r.Script += string(make([]byte, 4<<10))
		r.ScriptTotal = uint64(len(r.Script))
		verdicts[b.manager.Answer(r).Verdict]++
		if i%1000 == 999 {
			most = max(most, held()-before)
		}
	}
	t.Logf("%v in %s: %.1f MB more at most", verdicts, time.Since(begun).Round(time.Millisecond), float64(most)/1e6)
	if most > 200<<20 {
		t.Errorf("%d bytes", most)
	}
	lines, err := b.log.List(t.Context(), 1, decisionlog.Filter{})
	if err != nil || len(lines) == 0 {
		t.Error(err)
	}
}
