package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// say prints one JSON object as a line.
func say(fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// check runs the body as one check; ends the program with 1 when it fails.
func check(name string, messages int, body func() error) {
	begin := time.Now()
	if err := body(); err != nil {
		say(map[string]any{"check": name, "ok": false, "reason": err.Error()})
		os.Exit(1)
	}
	seconds := time.Since(begin).Seconds()
	say(map[string]any{"check": name, "ok": true, "messages": messages, "seconds": seconds})
}

// first returns the first error of several.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
