package strictjson_test

import (
	"testing"

	"github.com/gresize/gresize/internal/strictjson"
)

type document struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func TestUnmarshal(t *testing.T) {
	for name, c := range map[string]struct{ data, fault string }{
		"sound":            {"{\"name\": \"a\",\n\"bytes\": 3}\n", ""},
		"too large":        {`{"name": "` + string(make([]byte, 200)) + `"}`, "212 bytes, at most 100"},
		"empty":            {"", "empty: a JSON document is wanted"},
		"blanks":           {" \n", "empty: a JSON document is wanted"},
		"cut off":          {"{\"name\": \"a\",\n", "line 2, column 1: unexpected EOF"},
		"no JSON":          {"{\n  name: 1}", "line 2, column 4: invalid character 'n' looking for beginning of object key string"},
		"wrong kind":       {"{\"name\": \"a\",\n \"bytes\": \"x\"}", "line 2, column 14: json: cannot unmarshal string into Go struct field document.bytes of type int64"},
		"number too large": {`{"bytes": 1e400}`, "line 1, column 16: json: cannot unmarshal number 1e400 into Go struct field document.bytes of type int64"},
		"unknown field":    {"{\"name\": \"a\",\n\"byts\": 3}", `line 2, column 11: json: unknown field "byts"`},
		"two documents":    {"{}\n{}", "line 2, column 1: text behind the end of the document"},
		"garbage behind":   {"{}\n\x00", "line 2, column 1: text behind the end of the document"},
	} {
		t.Run(name, func(t *testing.T) {
			var d document
			err := strictjson.Unmarshal([]byte(c.data), 100, &d)
			if c.fault == "" {
				if err != nil || d != (document{"a", 3}) {
					t.Errorf("%+v, %v", d, err)
				}
				return
			}
			if err == nil || err.Error() != c.fault {
				t.Errorf("%v\nwant %s", err, c.fault)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"name": "a", "bytes": 3}`))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if err := strictjson.Unmarshal(data, 1<<10, &d); err == nil && len(data) > 1<<10 {
			t.Errorf("%d bytes were taken", len(data))
		}
	})
}
