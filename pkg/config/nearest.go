package config

import (
	"maps"
	"slices"
	"strings"
)

// nearestKey returns the known key that takes the fewest edits to reach. Among
// equals the first in order wins, so that the answer is always the same.
func nearestKey(name string) string {
	nearest, fewest := "", -1
	for _, key := range slices.Sorted(maps.Keys(registered)) {
		distance := editDistance(strings.ToLower(name), strings.ToLower(key))
		// Someone who writes the last part alone forgot the prefix: no edits count for that.
		if strings.HasSuffix(strings.ToLower(key), "."+strings.ToLower(name)) {
			distance = 1
		}
		if fewest < 0 || distance < fewest {
			nearest, fewest = key, distance
		}
	}
	return nearest
}

// editDistance counts the insertions, deletions and replacements of bytes that
// turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := diagonal
			if a[i-1] != b[j-1] {
				replace++
			}
			diagonal = row[j]
			row[j] = min(replace, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
