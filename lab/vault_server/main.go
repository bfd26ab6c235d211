// The transit engine of Vault behind its HTTP API, in memory, for tests.
//
// The engine is Vault's. The server around it has one token and one mount, and no policies: Vault's own
// server does not build against the published versions of its libraries.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/sdk/logical"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Arguments: address, and the file for the token.
func main() {
	ctx := context.Background()
	storage := &logical.InmemStorage{}
	engine, err := transit.Factory(ctx, &logical.BackendConfig{StorageView: storage, System: &logical.StaticSystemView{}})
	check(err)
	random := make([]byte, 16)
	_, err = rand.Read(random)
	check(err)
	token := hex.EncodeToString(random)
	check(os.WriteFile(os.Args[2], []byte(token), 0o600))
	serve := func(w http.ResponseWriter, r *http.Request) {
		path, found := strings.CutPrefix(r.URL.Path, "/v1/transit/")
		if r.Header.Get("X-Vault-Token") != token {
			http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
			return
		}
		if !found {
			http.NotFound(w, r)
			return
		}
		data := map[string]interface{}{}
		if err := json.NewDecoder(r.Body).Decode(&data); err != nil {
			http.Error(w, `{"errors":["malformed"]}`, http.StatusBadRequest)
			return
		}
		request := &logical.Request{Operation: logical.UpdateOperation, Path: path, Data: data, Storage: storage}
		response, err := engine.HandleRequest(r.Context(), request)
		if err != nil || (response != nil && response.IsError()) {
			http.Error(w, `{"errors":["refused"]}`, http.StatusBadRequest)
			return
		}
		answer := map[string]interface{}{}
		if response != nil {
			answer["data"] = response.Data
		}
		check(json.NewEncoder(w).Encode(answer))
	}
	check(http.ListenAndServe(os.Args[1], http.HandlerFunc(serve)))
}
