package spool

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzJob reads a spooled job from whatever lies in its file; what is read can be written and is read again as the same.
func FuzzJob(f *testing.F) {
	f.Add([]byte(`{"script":"IyEvYmluL3No","argv":["YQ=="],"environment":["QT0x"],"tasks":2,"array":{"count":3,"min":0,"max":2,"step":1,"tried":[0,1,2]}}`))
	f.Add([]byte(`{"script":"%"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(t.TempDir(), "spool")
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "t"+jobSuffix), data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := s.Job("t")
		if err != nil {
			return
		}
		if err := s.PutJob("u", j); err != nil {
			t.Fatal(err)
		}
		again, err := s.Job("u")
		if err != nil || !bytes.Equal(again.Script, j.Script) || !reflect.DeepEqual(again.Array, j.Array) || len(again.Environment) != len(j.Environment) {
			t.Fatalf("%+v became %+v: %v", j, again, err)
		}
	})
}
