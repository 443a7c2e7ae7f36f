// Command serve runs a fakecloud at localhost:8090.
package main

import (
	"log"
	"net/http"
	"time"

	"example.org/provider/fakecloud"
)

func main() {
	cloud := &fakecloud.Cloud{Slow: 15 * time.Second}
	s := &http.Server{Addr: "localhost:8090", Handler: cloud, ReadHeaderTimeout: time.Minute}
	log.Fatal(s.ListenAndServe())
}
