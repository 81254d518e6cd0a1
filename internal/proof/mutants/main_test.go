package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryMutantStillApplies(t *testing.T) {
	t.Chdir("../../..") // the edits name files from the repository's root
	for _, list := range [][]mutant{mutants, sagaMutants} {
		for i := range list {
			t.Run(list[i].what, func(t *testing.T) {
				_, err := list[i].overlay(t.TempDir())
				require.NoError(t, err)
			})
		}
	}
}
