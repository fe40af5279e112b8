package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
)

func newExportCommand() *cobra.Command {
	var path logPath
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "export [TABLE]",
		Short: "Write all rows of the decision log",
		Long: `Write every row of a table of the decision log, oldest first, as JSON lines or CSV.
Without a TABLE it is decision_list, one row for each job. The tables:

  ` + strings.Join(decisionlog.Exports(), ", ") + `

JSON lines hold what is stored. In CSV a text that a spreadsheet would take for a
formula begins with an apostrophe.`,
		Example: "  gresize export > decisions.jsonl\n  gresize export estimates --csv > estimates.csv",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(fmt.Errorf("give one table, not %d", len(args)))
			}
			return nil
		},
		ValidArgs: decisionlog.Exports(),
		RunE: func(cmd *cobra.Command, args []string) error {
			table := "decision_list"
			if len(args) == 1 {
				table = args[0]
			}
			log, err := path.open(cmd)
			if err != nil {
				return err
			}
			defer log.Close()
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
			if asCSV {
				err = exportCSV(cmd, log, table, out)
			} else {
				err = log.Export(cmd.Context(), table, func(columns []string, values []any) error { return writeJSONLine(out, columns, values) })
			}
			if errors.Is(err, decisionlog.ErrNoTable) {
				return usageError(err)
			}
			return errors.Join(err, out.Flush())
		},
	}
	path.addFlags(cmd)
	cmd.Flags().BoolVar(&asCSV, "csv", false, "write CSV instead of JSON lines")
	return cmd
}

func exportCSV(cmd *cobra.Command, log *decisionlog.Log, table string, out io.Writer) error {
	rows := newCSV(out)
	first := true
	err := log.Export(cmd.Context(), table, func(columns []string, values []any) error {
		if first {
			first = false
			if err := rows.row(columns...); err != nil {
				return err
			}
		}
		cells := make([]string, len(values))
		for i, v := range values {
			cells[i] = cell(v)
		}
		return rows.row(cells...)
	})
	return errors.Join(err, rows.flush())
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// writeJSONLine keeps the order of the columns, and JSON columns as the documents that they are.
func writeJSONLine(w *bufio.Writer, columns []string, values []any) error {
	separator := byte('{')
	for i, column := range columns {
		var value any = values[i]
		if text, ok := values[i].(string); ok && decisionlog.HoldsJSON(column) {
			value = json.RawMessage(text)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("column %s: %w", column, err)
		}
		w.WriteByte(separator)
		w.WriteString(strconv.Quote(column))
		w.WriteByte(':')
		if _, err := (harmlessJSON{w}).Write(encoded); err != nil {
			return err
		}
		separator = ','
	}
	_, err := w.WriteString("}\n")
	return err
}
