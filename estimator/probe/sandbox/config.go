package sandbox

import (
	"bytes"
	"encoding/gob"
)

// config is what the starting process tells the two inner stages.
type config struct {
	Argv   []string
	Env    []string
	Dir    string
	Files  []File
	Policy Policy
	// Writable are directories in which the command will make files, such as its home.
	Writable []string
	Base     string
	// Passwd is a line for /etc/passwd where the name service cannot be asked from inside.
	Passwd string
	// Network is what of the machine's network is there inside.
	Network network
}

// encode keeps every byte: names of files, arguments and variables need not be text, which JSON would make of them.
func (c *config) encode() ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(c)
	return b.Bytes(), err
}

func decodeConfig(data []byte) (*config, error) {
	c := new(config)
	return c, gob.NewDecoder(bytes.NewReader(data)).Decode(c)
}
