package estimator

// Job says which job an estimate is for, to estimators that know what earlier ones took: whose it is, and what makes two of them the same. The zero
// value is a job of which nothing is known.
type Job struct {
	// UID is the owner: what another user's jobs took is no evidence.
	UID uint32
	// Fingerprint stands for all that a run depends on, as far as a submission shows it; ScriptSHA256 for the script alone.
	Fingerprint  string
	ScriptSHA256 string
}
