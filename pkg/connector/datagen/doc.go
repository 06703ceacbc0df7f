// Package datagen is a source of numbers, or of records made of them, for
// tests, demonstrations and measurements. Every record is a function of its
// number, so that a restored job reads exactly the same ones.
package datagen
