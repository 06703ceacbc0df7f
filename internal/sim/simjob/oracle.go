package simjob

import "fmt"

// CheckOutput compares what is visible with what may be: each key's counts
// must be 1 to n, each once. With complete set, n must be the number of all
// records of the key. (I1)
func (o Options) CheckOutput(out []Count, complete bool) error {
	seen := make(map[Count]bool, len(out))
	most := make(map[uint64]uint64, o.Keys)
	for _, c := range out {
		if seen[c] {
			return fmt.Errorf("count %d of key %d is in the output twice", c.N, c.Key)
		}
		seen[c] = true
		most[c.Key] = max(most[c.Key], c.N)
	}
	if !complete {
		return nil
	}
	var total uint64
	for key, want := range o.Expected(func(int) uint64 { return o.RecordsPerSplit }) {
		if most[key] != want {
			return fmt.Errorf("key %d was counted to %d, its records are %d", key, most[key], want)
		}
		total += want
	}
	if uint64(len(out)) != total {
		return fmt.Errorf("the output has %d records, the input %d", len(out), total)
	}
	return nil
}

// Expected is the count of each key when split i has been read up to
// position(i). (I2)
func (o Options) Expected(position func(split int) uint64) map[uint64]uint64 {
	out := make(map[uint64]uint64, o.Keys)
	for s := range o.Splits {
		for i := range position(s) {
			out[o.Key(s, i)]++
		}
	}
	return out
}
