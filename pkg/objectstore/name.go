package objectstore

import (
	"fmt"
	"strings"
)

// nameLengthMax keeps names, with some prefix before them, below the 1,024
// bytes that S3 allows, and elementLengthMax each element below what file
// systems allow (255) with room for the affixes of a temporary file.
const (
	nameLengthMax    = 900
	elementLengthMax = 200
)

// ValidateName says what is wrong with the name of an object, or nil. A name
// has one or more elements separated by single slashes. No element is empty
// or begins with a dot: such names belong to the stores themselves.
func ValidateName(name string) error {
	if name == "" {
		return fmt.Errorf("object name is empty")
	}
	if len(name) > nameLengthMax {
		return fmt.Errorf("object name %.40q… is %d bytes long: at most %d are allowed", name, len(name), nameLengthMax)
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "":
			return fmt.Errorf("object name %q has an empty element", name)
		case element[0] == '.':
			return fmt.Errorf("object name %q has the element %q, which begins with a dot", name, element)
		case len(element) > elementLengthMax:
			return fmt.Errorf("object name %.40q… has an element of %d bytes: at most %d are allowed", name, len(element), elementLengthMax)
		}
	}
	for i := range len(name) {
		// Printable ASCII without the backslash is what every file system and
		// every S3 server spells the same way.
		if c := name[i]; c < ' ' || c > '~' || c == '\\' {
			return fmt.Errorf("object name %q has the character %q", name, c)
		}
	}
	return nil
}
