package contract

import (
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
)

// FuzzAnswer reads what an estimator's process sends back. What is taken is an answer to the question, in range.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"schema":"` + estimator.SchemaEstimate + `","estimator":"e","gpu":"t4","confidence":"exact","fits":true,"reasons":[],"ranks":[{"peak_allocated_bytes":1,"peak_reserved_bytes":2,"comfortable_bytes":2,"comfortable_high_bytes":3}]}`))
	f.Add([]byte(`{"confidence":"unknown","reasons":[{"code":"x"}]}`))
	f.Add([]byte(`{"ranks":[{"peak_allocated_bytes":-9223372036854775808}]}`))
	card, err := gpu.Load("t4")
	if err != nil {
		f.Fatal(err)
	}
	info := Info{Name: "e"}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeAnswer(data, info, NewRequest("/b", card))
		if err != nil {
			return
		}
		if err := e.Validate(); err != nil || e.Estimator != "e" || e.GPU != card.ID {
			t.Fatalf("%+v was taken: %v", e, err)
		}
		for _, r := range e.Ranks {
			if r.ComfortableBytes < 0 || r.ComfortableHighBytes < r.ComfortableBytes {
				t.Fatalf("%+v was taken", r)
			}
		}
	})
}
