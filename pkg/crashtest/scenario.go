package crashtest

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// A Scenario is a list of acts of a user on managed resources. At its end each managed resource
// has to be as the user wants it: Ready with its external resource, or gone with it.
type Scenario struct {
	// Name of the scenario, which is part of the name of a subtest.
	Name string

	// Setup lists acts that happen before any fault does.
	Setup []Act

	// Acts of the scenario. Faults happen from the first one on.
	Acts []Act

	// optional scenarios are left out if the provider has nothing for them.
	optional bool
}

// An Act is one thing that a user does. It happens two minutes after the act before has had its effect, or an hour
// after that act if it has none.
type Act struct {
	// Do it, for instance [Delete]. Returning an error ends the run.
	Do func(u *User) error

	// DuringCall moves the act into the first call that changes the external system after
	// the previous act: it happens after the external system changed and before the
	// provider gets the answer. Without such a call it happens as any other act.
	DuringCall bool
}

// Scenarios returns the default scenarios. Append to them, or select some.
func Scenarios() []Scenario {
	create, change, remove := Act{Do: Create}, Act{Do: Change}, Act{Do: Delete}
	deny, grant, second := Act{Do: DenyAccess}, Act{Do: GrantAccess}, Act{Do: CreateSecond}
	rename, abandoned := Act{Do: Rename}, []Act{create, second, {Do: AbandonSecond}}
	during := func(do func(u *User) error) Act { return Act{Do: do, DuringCall: true} }
	created := []Act{create}

	out := []Scenario{
		{Name: "create", Acts: []Act{create}},
		{Name: "update", Setup: created, Acts: []Act{change}},
		{Name: "delete", Setup: created, Acts: []Act{remove}},
		{Name: "delete-in-create", Acts: []Act{create, during(Delete)}},
		{Name: "update-in-create", Acts: []Act{create, during(Change)}},
		{Name: "delete-in-update", Setup: created, Acts: []Act{change, during(Delete)}},
		{Name: "update-in-update", Setup: created, Acts: []Act{change, during(ChangeBack)}},
		{Name: "delete-finalizer", Setup: created, Acts: []Act{{Do: AddFinalizer}, remove}},
		{Name: "restart", Setup: created, Acts: []Act{{Do: Restart}}},
		{Name: "pause", Setup: created, Acts: []Act{{Do: Pause}, change, {Do: Resume}}},
		{Name: "orphan", Setup: created, Acts: []Act{{Do: ForbidDelete}, remove}},
		{Name: "two", Setup: created, Acts: []Act{second, {Do: DeleteSecond}}},
		{Name: "rename", Setup: abandoned, Acts: []Act{rename}},
		{Name: "rename-delete", Setup: abandoned, Acts: []Act{rename, remove}},
		{Name: "same-name", Setup: created, Acts: []Act{{Do: CreateSameName}, {Do: DeleteSecond}}},
		{Name: "drift", Setup: created, Acts: []Act{{Do: DeleteExternal}}},
		{Name: "credentials", Acts: []Act{deny, create, grant}},
		{Name: "credentials-delete", Setup: created, Acts: []Act{deny, remove, grant}},
		{Name: "pause-delete", Setup: created, Acts: []Act{{Do: Pause}, remove, {Do: Resume}}},
	}
	for i := range out {
		out[i].optional = true
	}
	return out
}

// checkScenarios returns the scenarios to run, or an error for one that can't be run.
func checkScenarios(list []Scenario) ([]Scenario, error) {
	if len(list) == 0 {
		list = Scenarios()
	}
	seen := map[string]bool{}
	for _, s := range list {
		switch {
		case s.Name == "" || strings.ContainsAny(s.Name, "/ ()|^$*+?[]{}\\"):
			return nil, errors.Errorf(
				"crashtest: the name of a scenario is %q: use letters, digits and hyphens, because it is part of the "+
					"name of a subtest", s.Name,
			)
		case seen[s.Name]:
			return nil, errors.Errorf("crashtest: two scenarios are named %q: give each its own name", s.Name)
		case len(s.Acts) == 0:
			return nil, errors.Errorf("crashtest: scenario %q has no acts: list what the user does", s.Name)
		}
		for i, a := range slices.Concat(s.Setup, s.Acts) {
			if a.Do == nil {
				return nil, errors.Errorf(
					"crashtest: act %d of scenario %q has no Do: set it to a function such as crashtest.Delete", i+1,
					s.Name,
				)
			}
		}
		seen[s.Name] = true
	}
	return list, nil
}
