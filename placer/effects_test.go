// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// effects.go or the model carries out each effect of package gang, except Commit, which decide.go
// carries out. The compiler does not notice an effect that nothing carries out.
func TestEveryEffectIsCarriedOut(t *testing.T) {
	defined, err := os.ReadFile("gang/event.go")
	if err != nil {
		t.Fatal(err)
	}
	carried, err := os.ReadFile("effects.go")
	if err != nil {
		t.Fatal(err)
	}
	inModel, err := os.ReadFile("model/model.go")
	if err != nil {
		t.Fatal(err)
	}
	effects := regexp.MustCompile(`func \((\w+)\) awaits\(\)`).FindAllStringSubmatch(string(defined), -1)
	if len(effects) < 10 {
		t.Fatalf("%d effects found", len(effects))
	}
	for _, e := range effects {
		if name := e[1]; name != "Commit" && !strings.Contains(string(carried)+string(inModel), "\tcase gang."+name+":") {
			t.Errorf("effect %s is not carried out", name)
		}
	}
}
