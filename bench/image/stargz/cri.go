// Package v1alpha2 stands in for k8s.io/cri-api, of which the stargz library uses this type; see build.sh.
package v1alpha2

// AuthConfig is a registry's log-in.
type AuthConfig struct {
	Username, Password, Auth, ServerAddress, IdentityToken, RegistryToken string
}
