package decisionlog

// Observation is what was just made durable about a job, for whoever counts.
type Observation struct {
	// State is the state that the job has reached, or empty where only an actual came in.
	State string
	// Decision is the one made in this step, if there was one.
	Decision *Decision
	// Actual is what came back from the job's run, if it did.
	Actual *Actual
}

// Observe has f called after each commit that changes what is known of a job. f must return at once. Call it before the log is shared.
func (l *Log) Observe(f func(Observation)) { l.observer = f }

func (l *Log) observed(o Observation) {
	if l.observer != nil {
		l.observer(o)
	}
}
