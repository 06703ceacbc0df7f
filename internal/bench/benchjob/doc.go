// Command benchjob is the job program of the benchmarks: SDK jobs that measure
// themselves, and the baselines that they are compared with. The jobs write
// what they measured to -result as key=value lines.
package main
