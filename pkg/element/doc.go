// Package element defines what travels on a channel between two subtasks:
// frames of records, and between them the control elements barrier, cancel
// marker, watermark, status, end of data and end of partition.
//
// A frame is the unit of transfer. It carries either a batch of encoded
// records or exactly one control element, so that a barrier's place between
// two records is the place of its frame between two frames.
package element
