// Reads a dashboard by Grafana's own schema: strictly, so that no field is unknown or missing.
//
// Argument: the file. Prints what is wrong, a line each, and ends with 1 if anything is.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	raw, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	plugins.RegisterDefaultPlugins()
	var read dashboard.Dashboard
	wrong := ""
	if err := read.UnmarshalJSONStrict(raw); err != nil {
		wrong = err.Error()
	}
	if err := read.Validate(); err != nil && err.Error() != "" {
		wrong += "\n" + err.Error()
	}
	fmt.Println(wrong)
	if wrong != "" || len(read.Panels) == 0 {
		os.Exit(1)
	}
}
