// Package strictjson reads one JSON document whose form is known: a field that the form does not have or has in other
// letters, a field that stands twice, text behind the document and a document that is too large are faults, told with
// their place. It is for files that people write by hand and for messages that cross a boundary of trust, where every
// reader has to see the same in one document.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// Unmarshal reads data, at most limit bytes of it, into v, which is a pointer as for json.Unmarshal. A fault names the line
// and the column, both counted from 1, the column in bytes.
func Unmarshal(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("%d bytes, at most %d", len(data), limit)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return at(data, offset(err, data, decoder), err)
	}
	if rest := bytes.TrimLeft(data[decoder.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return at(data, int64(len(data)-len(rest)), errors.New("text behind the end of the document"))
	}
	decoder = json.NewDecoder(bytes.NewReader(data))
	if err := keys(decoder, reflect.TypeOf(v)); err != nil {
		return at(data, decoder.InputOffset(), err)
	}
	return nil
}

// offset is the number of bytes before the fault.
func offset(err error, data []byte, decoder *json.Decoder) int64 {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Offset
	case errors.As(err, &kind):
		return kind.Offset
	case errors.Is(err, io.ErrUnexpectedEOF):
		return int64(len(data))
	}
	return decoder.InputOffset()
}

func at(data []byte, offset int64, err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("empty: a JSON document is wanted")
	}
	before := data[:min(max(offset, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}
