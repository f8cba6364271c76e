package main

import (
	"context"
	"fmt"
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// device is a device of a slice, and its driver.
type device struct {
	Driver string `json:"driver"`
	resourceapi.Device
}

// evaluated is what an expression makes of one device.
type evaluated struct {
	Match bool   `json:"match"`
	Error string `json:"error,omitempty"`
	Cost  uint64 `json:"cost"`
}

// compiled is what the compiler says: the text of its error, or the estimate of the cost and what each device gives.
type compiled struct {
	Error   string      `json:"error,omitempty"`
	MaxCost float64     `json:"maxCost"`
	Results []evaluated `json:"results,omitempty"`
}

// evaluate answers for each of the devices. A panic of the compiler is an error like others.
func evaluate(ctx context.Context, text string, lists bool, devices []device, which []int) (answer compiled) {
	defer func() {
		if r := recover(); r != nil {
			answer = compiled{Error: fmt.Sprintf("panic: %v", r)}
		}
	}()
	features := cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: lists}
	done := cel.GetCompiler(features).CompileCELExpression(text, cel.Options{})
	if done.Error != nil {
		return compiled{Error: done.Error.Error()}
	}
	answer = compiled{MaxCost: math.Min(float64(done.MaxCost), 1e18)}
	if which == nil {
		for i := range devices {
			which = append(which, i)
		}
	}
	for _, i := range which {
		d := devices[i]
		d.Device = *d.Device.DeepCopy() // arithmetic of quantities may write into them
		match, details, err := done.DeviceMatches(ctx, cel.Device{
			Driver:                   d.Driver,
			AllowMultipleAllocations: d.AllowMultipleAllocations,
			Attributes:               d.Attributes,
			Capacity:                 d.Capacity,
		})
		result := evaluated{Match: match}
		if err != nil {
			result.Error = err.Error()
		}
		if cost := details.ActualCost(); cost != nil {
			result.Cost = *cost
		}
		answer.Results = append(answer.Results, result)
	}
	return answer
}
