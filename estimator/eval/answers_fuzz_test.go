package eval

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzAnswers reads files of answers, those that are gone on with among them: what is read is written so that it is read again as the same.
func FuzzAnswers(f *testing.F) {
	header := ""
	for i, c := range answerColumns {
		if i > 0 {
			header += ","
		}
		header += c
	}
	f.Add([]byte(header + "\n"))
	f.Add([]byte(header + "\n,,,,,\n\"half"))
	f.Add([]byte("a,b\n1,2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "answers.csv")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := ReadAnswers(path)
		opened, openErr := OpenAnswers(path)
		if openErr != nil {
			return
		}
		defer opened.file.Close()
		if err == nil && !reflect.DeepEqual(a.all, opened.all) {
			t.Fatalf("read %d answers, and %d to go on with", len(a.all), len(opened.all))
		}
	})
}
