// Kubernetes' own device selectors and device allocator on standard input: one case a line as JSON, one answer a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// row is one case. A row with devices alone replaces those that expressions are evaluated on.
type row struct {
	Devices    []device    `json:"devices"`
	Expression *string     `json:"expression"`
	Which      []int       `json:"which"`
	ListTypes  bool        `json:"listTypes"`
	Allocation *allocation `json:"allocation"`
}

func main() {
	runtime.GOMAXPROCS(1)
	reader := bufio.NewReaderSize(os.Stdin, 1<<20)
	writer := bufio.NewWriterSize(os.Stdout, 1<<16)
	defer writer.Flush()
	decoder := json.NewDecoder(reader)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	ctx := context.Background()
	var devices []device
	for decoder.More() {
		var r row
		if err := decoder.Decode(&r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		var answer any
		switch {
		case r.Allocation != nil:
			answer = allocate(ctx, r.Allocation)
		case r.Expression != nil:
			answer = evaluate(ctx, *r.Expression, r.ListTypes, devices, r.Which)
		default:
			devices = r.Devices
			answer = len(devices)
		}
		if err := encoder.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if decoder.Buffered() != nil && reader.Buffered() == 0 {
			writer.Flush()
		}
	}
}
