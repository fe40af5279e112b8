package trace

// Exception is the unhandled exception that ended a process, as the Python layer reports it in every mode.
type Exception struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	OutOfMemory bool   `json:"out_of_memory"`
}
