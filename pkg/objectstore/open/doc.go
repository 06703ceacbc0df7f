// Package open makes object stores from the paths and URIs that users
// configure: an absolute path, file:///path, or s3://bucket/prefix.
package open
