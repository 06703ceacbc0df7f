// Package localcluster runs a cluster of real processes on this host's
// loopback interface: a JobManager, TaskManagers and, if wanted, an S3 server.
//
// A cluster lives in a directory:
//
//	cluster.json        what was asked for, and every process with PID and start time
//	config.yaml         the configuration of all processes
//	lock                held while a command changes the cluster
//	log/<name>.log      output of each process
//	work/<name>/        working directory of each process; may be lost
//	ha/, checkpoints/, savepoints/   what the JobManager has to find again
//	s3/                 the S3 server's data
//
// The processes outlive the command that starts them, each in a session of its
// own. A process is known by its PID and start time, so that a PID that the
// system gave to another process is not taken for it; a zombie is dead. Task
// executors are found as the members of their TaskManager's session, also when
// that TaskManager is gone. Ports are chosen once and recorded, so that a
// process that is started again has its old address.
//
// Start is idempotent: it starts what is missing. The two keys of the S3
// server are the only secrets; the files that hold them are readable by their
// owner only, and they appear on no command line.
package localcluster
