package jobs

import "time"

// What one owner may add to the log by submissions that are only passed. Those that are held are bounded by other budgets.
const (
	rowsAtOnce    = 2000
	rowsPerSecond = 1
	// maxRowOwners bounds the owners whose rows are counted; beyond them the count begins anew.
	maxRowOwners = 10_000
	// rowsToldEvery is the pause between two lines of the journal about rows that are not written.
	rowsToldEvery = time.Minute
)

// rowBudget is what is left of an owner's rows.
type rowBudget struct {
	left float64
	at   time.Time
}

// mayAddRow says whether a submission that passes gets a row.
func (m *Manager) mayAddRow(uid uint32, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, known := m.rows[uid]
	if !known {
		if len(m.rows) >= maxRowOwners {
			clear(m.rows)
		}
		b = rowBudget{left: rowsAtOnce, at: now}
	}
	b.left, b.at = min(b.left+rowsPerSecond*now.Sub(b.at).Seconds(), rowsAtOnce), now
	may := b.left >= 1
	if may {
		b.left--
	} else if now.Sub(m.rowsTold) > rowsToldEvery {
		m.rowsTold = now
		m.config.Logger.Warn("submissions of an owner pass without a row: there are too many of them", "uid", uid, "most_at_once", rowsAtOnce, "per_second", rowsPerSecond)
	}
	m.rows[uid] = b
	return may
}
