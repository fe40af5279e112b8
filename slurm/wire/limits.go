package wire

// The limits of both sides. slurm/plugin/limits.h repeats the shared ones; a
// test reads that header and fails when a value differs.
const (
	// ProtocolVersion is raised by any change that an old peer would misread.
	ProtocolVersion = 1

	// HeaderBytes is the fixed part of a frame: magic, version, kind, length.
	HeaderBytes = 12

	// FieldHeaderBytes is the tag and the length before each field's value.
	FieldHeaderBytes = 6

	// MaxRequestBytes bounds the body of a request: a whole script and
	// environment with room for every other field at a usual size.
	MaxRequestBytes = 2 << 20

	// MaxReplyBytes bounds the body of a reply: every field at its limit fits.
	MaxReplyBytes = 16 << 10

	// MaxStringBytes bounds one text field of a request. Array and dependency
	// lists are the long ones; Slurm itself cuts most others at 1024.
	MaxStringBytes = 64 << 10

	// MaxScriptBytes is where the plugin cuts the job script.
	MaxScriptBytes = 1 << 20

	// MaxEnvironmentBytes is where the plugin cuts the environment, counted with
	// the four length bytes of each entry, always between two entries.
	MaxEnvironmentBytes = 256 << 10

	// MaxArgvBytes is where the plugin cuts the script's arguments, counted the
	// same way.
	MaxArgvBytes = 64 << 10

	// MaxListEntries bounds the entries of one list, so that a frame of empty
	// entries cannot cost more memory than its size suggests.
	MaxListEntries = 16 << 10

	// MaxRewriteBytes bounds a value that the plugin writes into a job: Slurm
	// refuses jobs whose fields reach 1024 bytes.
	MaxRewriteBytes = 1023

	// MaxHoldSeconds bounds the time that a job may be kept back.
	MaxHoldSeconds = 300

	// MaxTokenBytes bounds the token of a held job.
	MaxTokenBytes = 64

	// MaxEnvDropEntries and MaxEnvNameBytes bound the environment variables that
	// a hold may take out of a job.
	MaxEnvDropEntries = 32
	MaxEnvNameBytes   = 128
)
