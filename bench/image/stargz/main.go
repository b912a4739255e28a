// The stargz snapshotter as a process: Debian packages its library and its client, but not this.
//
// Usage: stargz ROOT SOCKET HOST, where HOST is a registry without TLS.
package main

import (
	"context"
	"log"
	"net"
	"os"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/contrib/snapshotservice"
	"github.com/containerd/stargz-snapshotter/service"
	"github.com/containerd/stargz-snapshotter/service/resolver"
	"google.golang.org/grpc"
)

func main() {
	root, socket, host := os.Args[1], os.Args[2], os.Args[3]
	plain := resolver.HostConfig{Mirrors: []resolver.MirrorConfig{{Host: host, Insecure: true}}}
	config := service.Config{
		ResolverConfig: service.ResolverConfig{Host: map[string]resolver.HostConfig{host: plain}},
	}
	// As for our own daemon, nothing is fetched in the background.
	config.NoBackgroundFetch = true
	snapshotter, err := service.NewStargzSnapshotterService(context.Background(), root, &config)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	snapshotsapi.RegisterSnapshotsServer(server, snapshotservice.FromSnapshotter(snapshotter))
	log.Fatal(server.Serve(listener))
}
