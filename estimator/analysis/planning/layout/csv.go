package layout

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// CSVMagic are the first bytes of a file of blocks as MiniMalloc's problems are: a line id,lower,upper,size, then a block a line.
const CSVMagic = "id,"

var csvColumns = []string{"id", "lower", "upper", "size"}

// ReadCSV reads such a file. Blocks live from lower until before upper. An error names the line and the column.
func ReadCSV(in io.Reader) (blocks []Block, err error) {
	r := csv.NewReader(bufio.NewReader(in))
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	if head = slices.Clone(head); len(head) != len(csvColumns) {
		return nil, fmt.Errorf("line 1: columns %.80q, want %s", strings.Join(head, ","), strings.Join(csvColumns, ","))
	}
	place := make([]int, len(csvColumns))
	for i, name := range csvColumns {
		if place[i] = slices.Index(head, name); place[i] < 0 {
			return nil, fmt.Errorf("line 1: columns %.80q, want %s", strings.Join(head, ","), strings.Join(csvColumns, ","))
		}
	}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err // it names the line
		}
		line, _ := r.FieldPos(0)
		var values [4]int64
		for i := 1; i < len(csvColumns); i++ {
			if values[i], err = strconv.ParseInt(row[place[i]], 10, 64); err != nil {
				return nil, fmt.Errorf("line %d: %s: %.40q is no whole number", line, csvColumns[i], row[place[i]])
			}
		}
		b := Block{Start: values[1], End: values[2], SizeBytes: uint64(values[3])}
		if values[3] < 0 || b.Start >= b.End {
			return nil, fmt.Errorf("line %d: a block of %d bytes that lives from %d until before %d makes no sense", line, values[3], b.Start, b.End)
		}
		if len(blocks) == MaxBlocks {
			return nil, fmt.Errorf("line %d: more than %d blocks", line, MaxBlocks)
		}
		blocks = append(blocks, b)
	}
	return blocks, Check(blocks)
}
