// karpenter-plan answers planning and disruption cases with the scheduler and the disruption controller of the karpenter
// module itself: one case as a line of JSON on standard input, its answer as a line of JSON on standard output, in the
// same order.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	decoder := json.NewDecoder(in)
	encoder := json.NewEncoder(out)
	for decoder.More() {
		var asked Case
		if err := decoder.Decode(&asked); err != nil {
			fmt.Fprintf(os.Stderr, "karpenter-plan: a case cannot be read: %v\n", err)
			os.Exit(2)
		}
		if err := encoder.Encode(answered(asked)); err != nil {
			fmt.Fprintf(os.Stderr, "karpenter-plan: an answer cannot be written: %v\n", err)
			os.Exit(1)
		}
		if err := out.Flush(); err != nil {
			os.Exit(1)
		}
	}
}

// answered never ends the program: a case that Karpenter cannot answer says why.
func answered(asked Case) (answer Answer) {
	defer func() {
		if failed := recover(); failed != nil {
			answer = Answer{ID: asked.ID, Failed: fmt.Sprintf("%v\n%s", failed, debug.Stack())}
		}
	}()
	ask := solve
	if asked.Disruption != nil {
		ask = disrupt
	}
	answer, err := ask(context.Background(), asked)
	if err != nil {
		return Answer{ID: asked.ID, Failed: err.Error()}
	}
	return answer
}
