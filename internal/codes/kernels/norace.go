//go:build !race

package kernels

func RaceReads[T any]([]T)                                                  {}
func RaceWrites[T any]([]T)                                                 {}
func RaceReadsRows[T any]([]T, int, []uint32)                               {}
func RaceWritesRows[T any]([]T, int, []uint32)                              {}
func raceReadsVectors([]*Int8Vector)                                        {}
func raceIntervals([]byte, int, []uint32, calls, []float32, []float32, int) {}
