// Command kubebin is one program that holds the real Kubernetes components.
// It picks the component by the name it was started under (argv[0], so that
// symbolic links work) or else by its first argument:
//
//	kubebin kube-apiserver --etcd-servers=...
//	ln -s kubebin kubelet && ./kubelet --config=...
//
// Linking once keeps the build short and the disk use small.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones for CronJob

	"github.com/spf13/cobra"

	_ "k8s.io/client-go/plugin/pkg/client/auth"           // kubectl: client auth plugins
	"k8s.io/component-base/cli"                           // runs a cobra command the way the real mains do
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 nil,                           // built below: it reads os.Args while it is made
}

func main() {
	name := filepath.Base(os.Args[0])
	if _, ok := components[name]; !ok {
		if len(os.Args) < 2 {
			usage()
		}
		// Shift: argv[1] becomes the program's name.
		name = filepath.Base(os.Args[1])
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	make, ok := components[name]
	if !ok {
		usage()
	}
	if name == "kubectl" {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	}
	os.Exit(cli.Run(make()))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kubebin COMPONENT [flags]; COMPONENT is one of:")
	for name := range components {
		fmt.Fprintln(os.Stderr, "  "+name)
	}
	os.Exit(2)
}
