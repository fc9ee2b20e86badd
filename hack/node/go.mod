module github.com/verticalscaler/verticalscaler-operator/hack/node

go 1.26.0
