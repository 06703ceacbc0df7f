package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// result prints the result of a verb: value as JSON, or what text prints.
func (c *cli) result(value any, text func() error) error {
	if c.output == textOutput {
		return text()
	}
	encoder := json.NewEncoder(c.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// say prints to stdout.
func (c *cli) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(c.stdout, format, args...); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// progress prints a line to stderr. Nothing depends on it, so an error of it
// does not end the verb.
func (c *cli) progress(line string) { _, _ = fmt.Fprintln(c.stderr, line) }

// table prints rows in columns below their headings.
func (c *cli) table(headings []string, rows [][]string) error {
	return tableTo(c.stdout, headings, rows)
}

func tableTo(to io.Writer, headings []string, rows [][]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headings}, rows...) {
		// Errors of the writer below come out of Flush.
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// timeOf reads a time of a message, nil when it is unknown.
func timeOf(unixMS int64) *time.Time {
	if unixMS == 0 {
		return nil
	}
	t := time.UnixMilli(unixMS).UTC()
	return &t
}

// showTime prints a time for people, in theirs.
func showTime(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// showNumber prints an ID of which 0 stands for none.
func showNumber(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// showText prints a text that may be empty in a column.
func showText(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// showBytes prints a size.
func showBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
